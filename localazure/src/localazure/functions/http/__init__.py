"""HTTP: routes, keys, CORS, limits and web frameworks."""
