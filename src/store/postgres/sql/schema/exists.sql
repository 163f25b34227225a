SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)
