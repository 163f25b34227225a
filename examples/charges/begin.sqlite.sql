-- Waits for other writers here, and not midway.
BEGIN IMMEDIATE
