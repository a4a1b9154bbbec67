"""Who may do what: tokens, rights, clearance, limits. Values and one small file; no network, no event loop."""
