"""The tables, typed; the migrations beside them create them, and `tuned_db.storage` uses them.

A device (with its driver) has tunings, one per generator, problem and state of the caches. A tuning
has measurements and at most one winner; failures are measurements, too, so that no variant is tried
twice. Tokens let people write to a database that is served to others. Batches say what came when
from where; checks and quarantined origins decide which claims may serve.
"""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from sqlalchemy import JSON, Float, ForeignKey, Index, String, Text, UniqueConstraint, false
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Declarative base of every table."""


class DeviceRow(Base):
    """A device as `oclgen.limits.DeviceInfo` has it; another driver is another row.

    The peaks are what `oclgen.measuring.peak` measured here at best: fp32 GFLOP/s, and GB/s of a
    copy; `peaks` has GFLOP/s of dtypes other than fp32. The claimed ones are the largest that
    records from elsewhere give; they are shown only where nothing was measured here, and never
    become a peak that was. `limits` are
    `oclgen.limits.Limits` as they were when something was last tuned here, None where nothing was.
    """

    __tablename__ = "oclgen_devices"
    __table_args__ = (
        UniqueConstraint(
            "name", "vendor", "kind", "architecture", "runtime", "runtime_version",
            "driver_version", "compute_units", name="oclgen_one_device",
        ),
    )  # fmt: skip

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(400))
    vendor: Mapped[str] = mapped_column(String(400))
    kind: Mapped[str] = mapped_column(String(8))
    architecture: Mapped[str] = mapped_column(String(400))
    runtime: Mapped[str] = mapped_column(String(400))
    runtime_version: Mapped[str] = mapped_column(String(400))
    driver_version: Mapped[str] = mapped_column(String(400))
    compute_units: Mapped[int]
    peak_gflops: Mapped[float | None] = mapped_column(Float)
    peak_gbytes: Mapped[float | None] = mapped_column(Float)
    claimed_gflops: Mapped[float | None] = mapped_column(Float)
    claimed_gbytes: Mapped[float | None] = mapped_column(Float)
    peaks: Mapped[dict[str, float] | None] = mapped_column(JSON(none_as_null=True))
    claimed_peaks: Mapped[dict[str, float] | None] = mapped_column(JSON(none_as_null=True))
    limits: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class TuningRow(Base):
    """All measurements of a problem on a device with one generator and one state of the caches.

    `generator` says which version of the generator wrote it, and no more: which kernels were
    measured, the digest of each measurement tells.
    `trials` counts the distinct variants that were tried here, `claimed` those that were tried
    where records came from: the largest number that one of them gives. `cache` is
    `oclgen.measurement.Cache`; times with warm and with cold caches are never compared.
    """

    __tablename__ = "oclgen_tunings"
    __table_args__ = (
        UniqueConstraint("device_id", "generator", "problem", "cache", name="oclgen_one_tuning"),
        Index("oclgen_by_device", "device_id", "id"),
        Index("oclgen_by_problem", "problem"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("oclgen_devices.id"))
    generator: Mapped[str] = mapped_column(String(400))
    problem: Mapped[str] = mapped_column(String(400))
    cache: Mapped[str] = mapped_column(String(4), server_default="warm")
    trials: Mapped[int] = mapped_column(default=0)
    claimed: Mapped[int] = mapped_column(default=0, server_default="0")
    winner_id: Mapped[int | None]


class MeasurementRow(Base):
    """One variant measured once: times in milliseconds, or why there are none.

    The columns of a measurement are listed here and nowhere else. `origin` is empty for what was
    measured by those who write to this database; else it says how the row came here ("import",
    "push by alice"), and its times are claims. `seed` and `conditions` are those of
    `oclgen.measurement.Measurement`; without a seed they are not known. `digest` names the text of
    the kernels that were measured (`tuned_db.records.digests`), None where it is not known.
    `promoted`: measured side by side, it won against what was measured before it. `batch_id` names
    the `BatchRow` that a row came with, None where it was measured here.
    """

    __allow_unmapped__ = True  # `arrived` is another table's
    __tablename__ = "oclgen_measurements"
    __table_args__ = (Index("oclgen_by_tuning", "tuning_id", "family"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    tuning_id: Mapped[int] = mapped_column(ForeignKey("oclgen_tunings.id"))
    family: Mapped[str] = mapped_column(String(400))
    config: Mapped[str] = mapped_column(Text)
    samples: Mapped[list[float]] = mapped_column(JSON)
    ms: Mapped[float | None] = mapped_column(Float)
    spread: Mapped[float | None] = mapped_column(Float)
    error: Mapped[float | None] = mapped_column(Float)
    invalidity: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text)
    created: Mapped[str] = mapped_column(String(20))
    version: Mapped[str] = mapped_column(String(400))
    origin: Mapped[str] = mapped_column(String(100), server_default="")
    seed: Mapped[int | None]
    conditions: Mapped[dict[str, float] | None] = mapped_column(JSON(none_as_null=True))
    digest: Mapped[str | None] = mapped_column(String(16))
    promoted: Mapped[bool] = mapped_column(default=False, server_default=false())
    batch_id: Mapped[int | None]

    arrived: str | None = None
    """When it came from elsewhere, by this database's clock; of rows that `browse` returns."""

    @property
    def verified(self) -> bool:
        """Whether those who write to this database measured it, so that it is no mere claim."""
        return not self.origin


MEASURED: dict[str, Any] = {
    column.name: get_args(get_type_hints(MeasurementRow)[column.name])[0]
    for column in MeasurementRow.__table__.columns
    if column.name not in ("id", "tuning_id", "batch_id")
}
"""The columns that say something of a measurement, and the type of each in Python."""


class BatchRow(Base):
    """What came from elsewhere at once: an import, a merge, a pull, or what one token pushed.

    `arrived` is this database's clock, not the sender's. `token` and `address` are those of an
    upload, else empty. `records` counts what was new.
    """

    __tablename__ = "oclgen_batches"

    id: Mapped[int] = mapped_column(primary_key=True)
    origin: Mapped[str] = mapped_column(String(100))
    token: Mapped[str] = mapped_column(String(64), default="")
    address: Mapped[str] = mapped_column(String(64), default="")
    arrived: Mapped[str] = mapped_column(String(20))
    records: Mapped[int] = mapped_column(default=0)


class CheckRow(Base):
    """The result of a quick check of a plan, before it first served on a device.

    `digest` names the plan, so that it is known again whatever record it comes from. `reason` is
    empty where it was right and not far slower than claimed.
    """

    __tablename__ = "oclgen_checks"
    __table_args__ = (UniqueConstraint("device_id", "digest", name="oclgen_one_check"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("oclgen_devices.id"))
    digest: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text)
    created: Mapped[str] = mapped_column(String(20))


class QuarantineRow(Base):
    """An origin whose claims do not serve; they stay, and are settled by measuring alone."""

    __tablename__ = "oclgen_quarantine"

    origin: Mapped[str] = mapped_column(String(100), primary_key=True)
    reason: Mapped[str] = mapped_column(Text)
    created: Mapped[str] = mapped_column(String(20))


class ForeignRow(Base):
    """What another tuner measured of a kernel of its own (`tuned_db.tuners.foreign`).

    It is no measurement of a tuning: nothing here can build, check or run it. `digest` is the
    SHA-256 of all that is measured, so that a row which comes twice is one.
    """

    __tablename__ = "oclgen_foreign"
    __table_args__ = (
        UniqueConstraint("digest", name="oclgen_one_foreign"),
        Index("oclgen_by_kernel", "kernel", "device"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(String(64))
    tuner: Mapped[str] = mapped_column(String(64))
    kernel: Mapped[str] = mapped_column(String(400))
    source: Mapped[str] = mapped_column(String(64))
    device: Mapped[str] = mapped_column(String(400))
    sizes: Mapped[dict[str, int]] = mapped_column(JSON)
    words: Mapped[list[str]] = mapped_column(JSON)
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON)
    samples: Mapped[list[float]] = mapped_column(JSON)
    ms: Mapped[float | None] = mapped_column(Float)
    invalidity: Mapped[str] = mapped_column(String(16))
    origin: Mapped[str] = mapped_column(String(100))
    created: Mapped[str] = mapped_column(String(20))
    batch_id: Mapped[int | None]


class KeyRow(Base):
    """A trusted public key: what is signed with it is `name`'s (`tuned_db.trust.signatures`)."""

    __tablename__ = "oclgen_keys"
    __table_args__ = (UniqueConstraint("key", name="oclgen_one_key"),)

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(64))
    created: Mapped[str] = mapped_column(String(20))


class TokenRow(Base):
    """Who may use a database that is served; the token itself is not kept, its SHA-256 is.

    `role` is one of `tuned_db.trust.tokens.ROLES`. From `expires` on it is worth nothing; None:
    never. `used` is when it was last shown, to the minute. `daily` bounds the records that it may
    send in 24 hours; None: no bound.
    """

    __tablename__ = "oclgen_tokens"
    __table_args__ = (
        UniqueConstraint("name", name="oclgen_one_token"),
        UniqueConstraint("digest", name="oclgen_one_digest"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(64))
    digest: Mapped[str] = mapped_column(String(64))
    created: Mapped[str] = mapped_column(String(20))
    role: Mapped[str] = mapped_column(String(16), server_default="contributor")
    expires: Mapped[str | None] = mapped_column(String(20))
    used: Mapped[str | None] = mapped_column(String(20))
    daily: Mapped[int | None]
