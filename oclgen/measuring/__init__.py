"""From a plan to a measurement: workers, verification against float64, timing, peaks."""
