"""Lowering: marks in a module's PTX become records. register_budget.py and plan.py have its entry points."""
