# fish completion for asdf-mount
function __asdf_mount_options
    set -l before (string replace --regex '[^,]*$' '' -- (commandline --current-token))
    printf "$before%s\n" @MOUNT_OPTIONS@
end
function __asdf_mount_points
    awk '@MOUNT_POINTS@' /proc/self/mounts
end
# __fish_complete_suffix lists all files, those with the ending first
function __asdf_mount_files
    __fish_complete_suffix .asdf | string match --regex '^[^\t]*(?:\.asdf|/)(?:\t.*)?$'
end
complete -c asdf-mount -f
complete -c asdf-mount -n 'not __fish_contains_opt -s u unmount revert' -a '(__asdf_mount_files)'
complete -c asdf-mount -n '__fish_contains_opt -s u unmount revert' -a '(__asdf_mount_points)'
complete -c asdf-mount -s o -x -d 'mount options' -a '(__asdf_mount_options)'
@FLAGS@
