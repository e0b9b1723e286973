"""A database shared over HTTP: the service that `oclgen db serve` runs, and its client.

The service needs the extra `serve`; the client only httpx. `tuned_db.storage.store` decides what is
stored, and which record wins.
"""
