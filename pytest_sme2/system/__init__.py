"""The lowest layer, which knows no model, device or measurement: processes, files, cache, tools."""
