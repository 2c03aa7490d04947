# SPDX-License-Identifier: Apache-2.0
"""The few NVRTC calls that a compile check needs, through the shared library itself: no CUDA header, no GPU."""
import ctypes
import pathlib

SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12")


def load(extra_folder=None):
    """The library by its soname, from the loader's path or from `extra_folder`; None where there is none."""
    candidates = list(SONAMES)
    if extra_folder:
        candidates += [str(pathlib.Path(extra_folder) / name) for name in SONAMES]
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    return None


def _strings(values):
    return (ctypes.c_char_p * len(values))(*[value.encode() for value in values])


def _text(library, size_call, text_call, program):
    size = ctypes.c_size_t()
    _check(getattr(library, size_call)(program, ctypes.byref(size)), size_call)
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    _check(getattr(library, text_call)(program, buffer), text_call)
    return buffer.value.decode(errors="replace")


def _check(status, call):
    if status != 0:
        raise RuntimeError(f"{call} returned {status}")


def compile_program(library, source, headers, options):
    """Compiles `source` with `headers` (include name -> text) from memory. Returns (compiled, log, ptx)."""
    program = ctypes.c_void_p()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"all_headers.cu",
                                      ctypes.c_int(len(headers)), _strings(list(headers.values())),
                                      _strings(list(headers))), "nvrtcCreateProgram")
    try:
        compiled = library.nvrtcCompileProgram(program, ctypes.c_int(len(options)), _strings(options)) == 0
        log = _text(library, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program)
        # For a real architecture NVRTC keeps the PTX as well as the machine code.
        ptx = _text(library, "nvrtcGetPTXSize", "nvrtcGetPTX", program) if compiled else ""
        return compiled, log, ptx
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
