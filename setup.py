"""Build the native kernels: optional, limited API, so that one wheel serves every Python >= 3.11.

TOKENREEL_BUILD_NATIVE=0 builds a pure-Python wheel; TOKENREEL_BUILD_NATIVE=require
makes a failed compilation an error instead of a fallback to numpy.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

WANTED = os.environ.get("TOKENREEL_BUILD_NATIVE", "1")
SOURCES = sorted(str(path) for path in Path("src/tokenreel/native").glob("*.c"))

native = Extension(
    "tokenreel._native",
    sources=SOURCES,
    depends=["src/tokenreel/native/native.h"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    extra_compile_args=["-O3", "-std=c11", "-ffp-contract=off", "-Wall", "-Wextra"],
    py_limited_api=True,
    optional=WANTED != "require",
)

if WANTED == "0":
    setup()
else:
    setup(ext_modules=[native], options={"bdist_wheel": {"py_limited_api": "cp311"}})
