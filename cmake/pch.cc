// Carries a precompiled header that folders share.
