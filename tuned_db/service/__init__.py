"""A database shared over HTTP: the service that `oclgen db serve` runs, and its client.

The service needs the extra `serve`; the client only httpx. `tuned_db.storage` decides what is
stored, and which record wins. Its modules:

- how it runs: `app`, `processes`, `connections`, `guard`, `watch`
- requests: `asked`, `access`, `uploads`
- routes: `api`, `contributions`, `foreign` for programs; `pages`, `beyond`, `drawings` for people
- what many ask at once: `answers`, `together`
- the other end: `client`
"""
