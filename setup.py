"""Tags a wheel that carries compiled shims with its platform; pyproject.toml says all the rest."""

from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

SHIMS = Path(__file__).parent / "ocl_backend" / "runtime" / "prebuilt"


class WithShims(Distribution):
    """A distribution for one platform if it carries shims, for all if not."""

    def has_ext_modules(self) -> bool:
        """Return whether there are shims; setuptools asks before it chooses folder and tag."""
        return any(SHIMS.glob("ocl-torch*"))


class AnyPython(bdist_wheel):
    """A wheel for every Python: shims are reached through ctypes and know no Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, its C interface, and the platform."""
        return ("py3", "none", super().get_tag()[2])


setup(distclass=WithShims, cmdclass={"bdist_wheel": AnyPython})
