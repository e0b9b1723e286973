"""A database shared over HTTP: the service that `oclgen db serve` runs, and its client.

The service needs the extra `serve`; the client only httpx. What is stored, and which record wins,
is `tuned_db.store`'s business.
"""
