"""The playground: `mann serve`. It comes after everything else; nothing imports it but the commands."""
