-- The roles of docker-compose.yml, made by the PostgreSQL image once, as its superuser, when it makes the database.
-- Psql's own commands: passwords come from the environment, and stand in no file.

\getenv owner_password POSTGRES_OWNER_PASSWORD
\getenv login_password POSTGRES_LOGIN_PASSWORD

-- What sessions of servers and workers work as: it owns nothing, and row-level security holds for it.
create role anneal_app nologin;
-- Owns the database and its tables: for `anneal migrate`, `anneal keys` and `anneal tenants` alone.
create role anneal_owner login password :'owner_password' in role anneal_app;
-- What servers and workers log in as: it may become anneal_app, and nothing else.
create role anneal_login login password :'login_password' in role anneal_app;

alter database :"DBNAME" owner to anneal_owner;
revoke all on database :"DBNAME" from public;
grant connect on database :"DBNAME" to anneal_login;
