"""Modules that tell other libraries of the device; each is imported by those who use the library.

Most of these libraries import torchvision where it is installed, so that comes first.
"""

from importlib.util import find_spec

from ocl_backend.interop import torchvision_models

if find_spec("torchvision"):
    torchvision_models()
