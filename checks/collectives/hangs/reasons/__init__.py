"""Why ranks stand: what one has raised, joined, ended or asked for alone."""
