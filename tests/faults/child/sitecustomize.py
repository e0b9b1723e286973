"""Python imports this at its start: it plants the faults in children, before the worker."""

from tests.faults import planted

planted.enter()
planted.break_the_compiler()
planted.change_the_driver()
