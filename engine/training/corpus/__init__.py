"""From directories and packages to a corpus: licences, filters, duplicates, split, token shards."""
