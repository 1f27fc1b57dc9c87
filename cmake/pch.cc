// Carries the precompiled header that the torch folders share.
