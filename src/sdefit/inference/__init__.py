"""What likelihood methods share: where to begin, in which coordinates, under which priors."""
