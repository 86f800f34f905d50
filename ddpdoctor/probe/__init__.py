"""The instrument behind `ddpdoctor check`: host facts, the job pool, the user's targets, the checkup."""
