// Drawings: zoom of the strip, scrubber, charts.
