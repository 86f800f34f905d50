"""The warm job pool: small real jobs of fresh ranks, in a tenth of a second each."""
