/*
 * library.c
 *		Loads the library snowid_redis.
 *
 * That library needs hiredis, and this one does not: a server whose hiredis is gone
 * starts, and makes keys with a number.  Only the process "snowid registry" loads it,
 * from this library's folder, with symbols that nothing else sees.  PostgreSQL's own
 * function would keep a library of another build for good; so it would not be replaced
 * without a restart.
 */
#include "postgres.h"

#include <dlfcn.h>

#include "registry/library.h"

/* The library; NULL: it cannot be used now, and err has the reason. */
const RedisLink *
library_load(char *err)
{
	static const RedisLink *loaded = NULL;
	const RedisLink *found;
	char		path[MAXPGPATH] = "";
	Dl_info		here;
	void	   *handle;

	if (loaded)
		return loaded;
	if (dladdr(&loaded, &here) != 0)
		strlcpy(path, here.dli_fname, sizeof(path));
	get_parent_directory(path);
	join_path_components(path, path, "snowid_redis" DLSUFFIX);
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	found = handle ? dlsym(handle, "snowid_redis") : NULL;
	if (found && strcmp(found->build, LINK_BUILD) == 0)
		loaded = found;
	else if (found)
		snprintf(err, NET_ERR_LEN, "snowid_redis is of snowid %.30s, and this server runs %s: restart it after an upgrade",
				 found->build, LINK_BUILD);
	else
		snprintf(err, NET_ERR_LEN, "snowid_redis could not be loaded (install hiredis, or build snowid with it): %s",
				 dlerror());
	if (handle && !loaded)
		dlclose(handle);
	return loaded;
}
