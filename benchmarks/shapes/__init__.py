"""Which problems networks meet that users run: the list of networks, and their recording."""
