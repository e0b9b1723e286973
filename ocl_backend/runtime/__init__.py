"""The shim and what it manages: devices, memory, streams, launches, copies, profiles."""
