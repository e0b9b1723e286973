"""What is worth trying for families of attention."""
