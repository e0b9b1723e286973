"""The service as one ASGI application: API and pages behind the guard.

The command line starts it (`oclgen db serve`).
"""

from __future__ import annotations

import logging
from importlib.metadata import version

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.middleware.gzip import GZipMiddleware

from tuned_db.database.errors import DatabaseError
from tuned_db.service import api, beyond, drawings, pages, watch
from tuned_db.service.access import readers_only
from tuned_db.service.answers import KeptAnswers
from tuned_db.service.guard import Guard, RequestLimits
from tuned_db.storage.store import Store

DESCRIPTION = """
Tuned kernels, shared: read without a token, written with one. Records travel as the JSON lines
that `oclgen db export` writes; `oclgen db push` and `oclgen db pull` speak to these routes.
"""


def create_app(
    store: Store,
    limits: RequestLimits | None = None,
    *,
    private: bool = False,
    open_metrics: bool = False,
    process: str = "",
) -> FastAPI:
    """Return the application that serves `store`; its description is at `/openapi.json`.

    Args:
        store: what is served.
        limits: of one client.
        private: reading needs a token, too, all but `/healthz`.
        open_metrics: `/metrics` needs none even then.
        process: names this one in `/metrics` where several serve; "": it is alone.
    """
    app = FastAPI(
        title="oclgen records",
        version=version("oclgen"),
        description=DESCRIPTION.strip(),
        docs_url=None,  # these load scripts from elsewhere
        redoc_url=None,
        openapi_url=None if private else "/openapi.json",
    )
    figures = watch.Figures(process)
    asked = [Depends(readers_only(store))] if private else []
    for routes in (one.router(store) for one in (api, pages, beyond, drawings)):
        app.include_router(routes, dependencies=asked)
    app.include_router(watch.router(store, figures), dependencies=[] if open_metrics else asked)
    app.include_router(watch.health(store))
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    if not private:  # what is kept is shown without a token
        app.add_middleware(KeptAnswers, database=store.database)
    app.add_middleware(Guard, limits=limits or RequestLimits())
    app.add_middleware(watch.Watch, figures=figures)
    app.add_exception_handler(DatabaseError, _unavailable)
    return app


async def _unavailable(request: Request, error: Exception) -> JSONResponse:
    # the sentence names the file or the server: it goes to the log, not to the client
    logging.getLogger("oclgen.service").error("%s: %s", request.url.path, error)
    detail = "the database cannot be used at the moment; try again later"
    return JSONResponse({"detail": detail}, 503)
