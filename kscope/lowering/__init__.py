"""Lowering: turns marks in a module's PTX into records. register_budget.py and plan.py have its entry points."""
