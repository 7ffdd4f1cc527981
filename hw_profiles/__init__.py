"""What machines are: the profile schema, the shipped profiles, measuring and reading them."""
