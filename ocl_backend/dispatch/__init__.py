"""From a call of torch to a prepared launch: registration, settings, choices, errors, fallbacks."""
