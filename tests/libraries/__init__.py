"""Small programs of other libraries on the device; each skips where its library is missing."""
