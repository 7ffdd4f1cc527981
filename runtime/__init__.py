"""Executing a plan and recording what it does; carried along by the launcher, so it imports only torch and itself."""
