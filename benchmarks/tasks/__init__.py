"""What is measured: chosen shapes, and shapes that a seed draws. Nothing is run here."""
