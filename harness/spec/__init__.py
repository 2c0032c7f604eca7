"""What the user writes: a TOML file becomes typed tables, each value parsed once, each mistake one clear line."""
