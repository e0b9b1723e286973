"""Rules of fusion: how a chain of held launches of some operators becomes one kernel."""
