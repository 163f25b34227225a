-- Whatever the server's default: a statement that has waited for a row judges
-- it as it is now, instead of failing.
BEGIN ISOLATION LEVEL READ COMMITTED
