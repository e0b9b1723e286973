"""Operators of sequence models: attention, recurrent cells, embeddings."""
