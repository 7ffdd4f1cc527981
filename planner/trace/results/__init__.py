"""What kernels give: layouts, losses, recurrences; memory says how a result lies."""
