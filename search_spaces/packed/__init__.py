"""What is worth trying for families of products with packed weights."""
