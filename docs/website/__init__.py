"""The site: hooks of mkdocs, and checks of what it built."""
