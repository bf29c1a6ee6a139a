// Blocks, written as 40, 0,8 or 0,8,1 and selected as in kscope/capture/blocks.py:
//
//   40  #40  0:100     linear numbers x + nx * (y + ny * z), and ranges first:stop:step of them
//   0,8  0:4,8  :,8    coordinates x,y,z, and ranges of them

/** The ranges [first, stop, step] that a text selects: one of linear numbers, or several of coordinates; or null. */
function parseBlocks(text) {
  const linear = text.startsWith("#");
  const words = text.slice(linear ? 1 : 0).split(",");
  if (words.length > (linear ? 1 : 3)) return null;
  const axes = words.map((word) => {
    if (!/^(\d+|\d*:\d*(:\d*)?)$/.test(word)) return null;
    const [first, stop, step] = word.split(":");
    if (stop === undefined) return [Number(first), Number(first) + 1, 1];
    return [Number(first || 0), stop ? Number(stop) : Infinity, Number(step || 1)];
  });
  return axes.every((axis) => axis && axis[2] > 0) ? axes : null;
}

/** Blocks of a launch along x, y, z. */
function gridOf(launch) {
  return ["x", "y", "z"].map((axis) => Math.max(1, model.launches[axis][launch]));
}

function coordinates(block, [nx, ny]) {
  return [block % nx, Math.floor(block / nx) % ny, Math.floor(block / (nx * ny))];
}

/** Whether a warp's block is selected. */
function inBlocks(warp, axes) {
  const { warps } = model;
  const within = (value, [first, stop, step]) => value >= first && value < stop && (value - first) % step === 0;
  if (axes.length === 1) return within(warps.block[warp], axes[0]);
  const grid = gridOf(warps.launch[warp]);
  const at = coordinates(warps.block[warp], grid);
  return at.every((value, axis) => (axis < axes.length ? within(value, axes[axis]) : grid[axis] === 1));
}

/** A block's coordinates, as many as its grid has dimensions. */
function blockName(block, grid) {
  return coordinates(block, grid)
    .slice(0, grid[2] > 1 ? 3 : grid[1] > 1 ? 2 : 1)
    .join(",");
}

function blockText(warp) {
  return blockName(model.warps.block[warp], gridOf(model.warps.launch[warp]));
}

/** The name of a block of any launch: its coordinates if all grids are the same, else its linear number. */
function blockOfAny(block) {
  const count = model.launches.begin.length;
  const first = count ? gridOf(0) : [1, 1, 1];
  for (let launch = 1; launch < count; launch++) {
    if (gridOf(launch).some((size, axis) => size !== first[axis])) return `#${block}`;
  }
  return blockName(block, first);
}
