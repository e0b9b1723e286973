"""The service as one ASGI application: API and pages behind the guard.

The command line starts it (`oclgen db serve`).
"""

from __future__ import annotations

import logging
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from tuned_db.database import DatabaseError
from tuned_db.service import api, drawings, pages
from tuned_db.service.guard import Guard, Limits
from tuned_db.store import Store

DESCRIPTION = """
Tuned kernels, shared: read without a token, written with one. Records travel as the JSON lines
that `oclgen db export` writes; `oclgen db push` and `oclgen db pull` speak to these routes.
"""


def create_app(store: Store, limits: Limits | None = None) -> FastAPI:
    """Return the application that serves `store`; its description is at `/openapi.json`."""
    app = FastAPI(
        title="oclgen records",
        version=version("oclgen"),
        description=DESCRIPTION.strip(),
        docs_url=None,  # these load scripts from elsewhere
        redoc_url=None,
    )
    app.include_router(api.router(store))
    app.include_router(pages.router(store))
    app.include_router(drawings.router(store))
    app.add_middleware(Guard, limits=limits or Limits())
    app.add_exception_handler(DatabaseError, _unavailable)
    return app


async def _unavailable(request: Request, error: Exception) -> JSONResponse:
    # the sentence names the file or the server: it goes to the log, not to the client
    logging.getLogger("oclgen.service").error("%s: %s", request.url.path, error)
    detail = "the database cannot be used at the moment; try again later"
    return JSONResponse({"detail": detail}, 503)
