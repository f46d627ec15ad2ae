-- A naive implementation turns off synchronous commits to be faster: PostgreSQL acknowledges a
-- commit before it is on disk.
do $$
begin
    execute format('alter database %I set synchronous_commit = off', current_database());
end
$$;
