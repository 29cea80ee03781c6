"""Words that every other layer uses: types, ids, named random streams, errors."""
