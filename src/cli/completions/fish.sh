# fish completion for asdf-mount
function __asdf_mount_options
    set -l before (string replace --regex '[^,]*$' '' -- (commandline --current-token))
    printf "$before%s\n" @MOUNT_OPTIONS@
end
function __asdf_mount_points
    awk '$3 == "fuse.asdf-mount" {print $2}' /proc/self/mounts
end
complete -c asdf-mount -f
complete -c asdf-mount -n 'not __fish_contains_opt -s u unmount' -a '(__fish_complete_suffix .asdf)'
complete -c asdf-mount -n '__fish_contains_opt -s u unmount' -a '(__asdf_mount_points)'
complete -c asdf-mount -s o -x -d 'mount options' -a '(__asdf_mount_options)'
@FLAGS@
