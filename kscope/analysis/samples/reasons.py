"""The meaning of each stall reason, and what usually helps: one sentence each."""

from __future__ import annotations

ISSUED = "selected"
"""The warp issued an instruction: it did not wait."""

_HELP = {
    "selected": ("the warp issued an instruction", "nothing waits here: fewer instructions take less time"),
    "not_selected": ("the warp could issue, and the scheduler took another", "the SM is busy: fewer warps would do"),
    "long_scoreboard": (
        "the warp waits for a load from global or local memory, or from a texture",
        "load earlier (prefetch, more pipeline stages), coalesce, or keep the data in shared memory",
    ),
    "short_scoreboard": (
        "the warp waits for shared memory, or for a special function such as sin or exp",
        "avoid bank conflicts, load shared memory earlier, or use fewer special functions",
    ),
    "wait": (
        "the warp waits a fixed number of cycles for the instruction before it",
        "more independent instructions per warp (unroll, several accumulators), or more warps",
    ),
    "barrier": (
        "the warp waits at __syncthreads() or a named barrier for other warps",
        "balance the warps' work, or synchronize fewer of them",
    ),
    "math_pipe_throttle": (
        "the arithmetic unit that the instruction needs is busy",
        "use another unit (tensor cores, other precision), or fewer such instructions",
    ),
    "mio_throttle": (
        "the queue for shared memory and special functions is full",
        "fewer and wider accesses to shared memory",
    ),
    "lg_throttle": (
        "the queue for global and local memory is full",
        "fewer and wider loads and stores; TMA or cp.async instead of many small ones",
    ),
    "tex_throttle": ("the queue for textures is full", "fewer texture instructions"),
    "imc_miss": ("the warp waits for a constant that is not in its cache", "use the same constants in all warps"),
    "no_instructions": (
        "the warp waits for its code: it jumped far, or the code exceeds the instruction cache",
        "shorter code: unroll less",
    ),
    "branch_resolving": ("the warp waits for the target of a branch", "fewer branches, or predicates"),
    "dispatch_stall": ("the dispatcher holds the instruction back", "rare: register bank conflicts are a cause"),
    "drain": ("the warp has exited and waits for its stores", "store less at the end, or coalesce it"),
    "membar": ("the warp waits at a memory fence", "fewer fences, or of a smaller scope"),
    "sleeping": ("the warp sleeps: nanosleep, or a suspended wait on a barrier in memory", "signal it earlier"),
    "gmma": ("the warp waits for asynchronous matrix instructions (wgmma)", "more work between issue and wait"),
    "warpgroup_arrive": ("the warp waits for the others of its warp group", "balance the warp group's work"),
    "misc": ("a reason without a name", "nothing is known"),
}

_SHORT_NAMES = {"no_instruction": "no_instructions", "dispatch": "dispatch_stall"}
"""Reasons with other names in some releases of the sampler."""


def meaning(reason: str) -> str:
    """The meaning of a reason; empty for an unknown one."""
    return _help(reason)[0]


def remedy(reason: str) -> str:
    """What usually helps; empty for an unknown reason."""
    return _help(reason)[1]


def _help(reason: str) -> tuple[str, str]:
    return _HELP.get(_SHORT_NAMES.get(reason, reason), ("", ""))
