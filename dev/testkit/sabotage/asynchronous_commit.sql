-- A naive implementation turns off synchronous commits to be faster: they are acknowledged before
-- they are on disk.
do $$
begin
    execute format('alter database %I set synchronous_commit = off', current_database());
end
$$;
