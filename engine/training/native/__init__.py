"""A masked-diffusion infiller of one's own, from nothing: `dlsp-engine train-native`."""
